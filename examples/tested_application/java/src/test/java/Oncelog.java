import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A broker with its fail control, and a judge of histories, in processes that end with this one. */
final class Oncelog implements AutoCloseable {
    private final List<Process> processes = new ArrayList<>();
    private final HttpClient http = HttpClient.newHttpClient();
    private final String control;
    private final String judge;

    /** Where clients find the broker. */
    final String address;

    Oncelog(Path directory) throws IOException {
        BufferedReader broker = start(directory, "serve", "--data", directory.resolve("data").toString(), "--stop-at-eof",
                "--fail-control", "0", "--set", "listeners=PLAINTEXT://127.0.0.1:0");
        address = found("ready on (\\S+) ", broker.readLine());
        control = found("fail control at (\\S+)", broker.readLine());
        judge = found("(http://\\S+)", start(directory, "judge", "-b", address, "--stop-at-eof").readLine());
    }

    /** Orders one thing to go wrong, and returns the id of the order. */
    String fail(String order) throws Exception {
        return found("\"id\": *(\\d+)", post(control + "/faults", order));
    }

    /** Returns what the broker tells of an order: how often it has struck, for one. */
    String fault(String id) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(control + "/faults/" + id)).GET());
    }

    /** Returns the verdict on a history. */
    String verdict(String history) throws Exception {
        return post(judge + "/verdict", history);
    }

    @Override
    public void close() throws Exception {
        for (Process process : processes) {
            process.getOutputStream().close();
            process.waitFor();
        }
    }

    private BufferedReader start(Path directory, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getenv().getOrDefault("ONCELOG", "oncelog")));
        command.addAll(List.of(arguments));
        Path errors = Files.createTempFile(directory, "oncelog", ".log");
        Process process = new ProcessBuilder(command).redirectError(errors.toFile()).start();
        processes.add(process);
        return new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    private String post(String url, String body) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body)));
    }

    private String send(HttpRequest.Builder request) throws Exception {
        HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IOException(answer.statusCode() + ": " + answer.body());
        }
        return answer.body();
    }

    private static String found(String pattern, String text) throws IOException {
        Matcher matcher = Pattern.compile(pattern).matcher(text == null ? "" : text);
        if (!matcher.find()) {
            throw new IOException("oncelog did not say " + pattern + ", but: " + text);
        }
        return matcher.group(1);
    }
}
