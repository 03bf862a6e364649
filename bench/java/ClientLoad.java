import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's client as a load: reads "produce TOPIC RECORD_BYTES BATCH_BYTES SECONDS", "transactions TOPIC RECORD_BYTES COUNT"
 * or "consume TOPIC COUNT", and answers with the records or transactions, the seconds and the CPU seconds of the process.
 */
public final class ClientLoad {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final int LOOK_EVERY = 100;
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String address;
    private long count;
    private long started;
    private long cpu;

    private ClientLoad(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        ClientLoad load = new ClientLoad(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "produce" -> load.produce(words);
                case "transactions" -> load.transactions(words);
                case "consume" -> load.consume(words);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private void begin() {
        count = 0;
        started = System.nanoTime();
        cpu = PROCESS.getProcessCpuTime();
    }

    private void end() {
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.println(count + " " + seconds + " " + (PROCESS.getProcessCpuTime() - cpu) / 1e9);
        System.out.flush();
    }

    private Properties producing() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("enable.idempotence", "true");
        properties.put("acks", "all");
        return properties;
    }

    private void produce(String[] words) throws Exception {
        Properties properties = producing();
        properties.put("batch.size", words[3]);
        properties.put("linger.ms", "5");
        byte[] value = new byte[Integer.parseInt(words[2])];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(words[1], value)).get();
            begin();
            long until = started + (long) (Double.parseDouble(words[4]) * 1e9);
            Future<RecordMetadata> last = null;
            while (System.nanoTime() < until) {
                for (int each = 0; each < LOOK_EVERY; each++) {
                    last = producer.send(new ProducerRecord<>(words[1], value));
                }
                count += LOOK_EVERY;
            }
            producer.flush();
            last.get();
            end();
        }
    }

    private void transactions(String[] words) throws Exception {
        Properties properties = producing();
        properties.put("transactional.id", "java-" + words[1]);
        properties.put("linger.ms", "0");
        byte[] value = new byte[Integer.parseInt(words[2])];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            int all = Integer.parseInt(words[3]);
            for (int each = -all / 10; each < all; each++) {
                if (each == 0) {
                    begin();
                }
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(words[1], value));
                producer.commitTransaction();
            }
            count = all;
            end();
        }
    }

    private void consume(String[] words) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "5000");
        long all = Long.parseLong(words[2]);
        begin();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition source = new TopicPartition(words[1], 0);
            consumer.assign(List.of(source));
            consumer.seek(source, 0);
            while (count < all) {
                count += consumer.poll(TIMEOUT).count();
            }
            end();
        }
    }
}
