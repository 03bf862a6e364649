import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command line tools one after another in one JVM, as each of their own would take longer to start
 * than to work.
 *
 * <p>A line of input is a class, the standard input and the arguments, separated by tabs, all but the first as base64.
 * The answer is a line "done", the exit code (-1: it was still at work after SECONDS), and what it wrote, as base64.
 */
public final class ToolRunner {
    private static final long SECONDS = 60;

    private static final List<Runnable> hooks = new CopyOnWriteArrayList<>();

    /** The code with which the tool ended; many tools catch what Ended is thrown for, and then end once more. */
    private static volatile Integer ended;

    /** Whether the tool has ended and its hooks do not run yet: what it writes then is about Ended. */
    private static volatile boolean muted;

    private static final class Output extends ByteArrayOutputStream {
        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (!muted) {
                super.write(bytes, from, count);
            }
        }
    }

    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] options) throws Exception {
        PrintStream answers = System.out;
        InputStream commands = System.in;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(commands, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String[] arguments = new String[words.length - 2];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = new String(Base64.getDecoder().decode(words[i + 2]), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream written = new Output();
            int code = run(words[0], Base64.getDecoder().decode(words[1]), arguments, written);
            answers.println("done\t" + code + "\t" + Base64.getEncoder().encodeToString(written.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void end(int code) {
        if (ended == null) {
            ended = code;
            muted = true;
        }
        throw new Ended(ended);
    }

    private static int run(String tool, byte[] input, String[] arguments, ByteArrayOutputStream written)
            throws Exception {
        PrintStream out = new PrintStream(written, true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        System.setIn(new ByteArrayInputStream(input));
        int[] code = {0};
        ended = null;
        muted = false;
        hooks.clear();
        ThreadGroup group = new ThreadGroup(tool);
        Thread work = new Thread(group, () -> {
            int returned = call(tool, arguments, out);
            joinThoseThatKeepAJvmAlive(group);
            code[0] = ended == null ? returned : ended;
            muted = false;
            hooks.forEach(Runnable::run);
        }, tool);
        work.setDaemon(true);
        work.start();
        work.join(SECONDS * 1000);
        if (work.isAlive()) {
            for (StackTraceElement at : work.getStackTrace()) {
                out.println(at);
            }
            work.interrupt();
            return -1;
        }
        out.flush();
        return code[0];
    }

    private static void joinThoseThatKeepAJvmAlive(ThreadGroup group) {
        Thread[] found = new Thread[group.activeCount() + 10];
        int count = group.enumerate(found);
        for (int i = 0; i < count; i++) {
            if (found[i] != Thread.currentThread() && !found[i].isDaemon()) {
                try {
                    found[i].join();
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        }
    }

    private static int call(String tool, String[] arguments, PrintStream out) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failed) {
            for (Throwable cause = failed.getCause(); cause != null; cause = cause.getCause()) {
                if (cause instanceof Ended) {
                    return ((Ended) cause).code;
                }
            }
            failed.getCause().printStackTrace(out);
            return 1;
        } catch (ReflectiveOperationException missing) {
            out.println(missing);
            return 2;
        }
    }
}
