import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Java's client behind the commands of line_client.py: tab-separated words in, tab-separated lines out. */
public final class InteropClient {
    private static final Duration TIMEOUT = Duration.ofSeconds(20);
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));
    private static final PrintStream OUT = System.out;

    private final String address;
    private final Admin admin;

    private InteropClient(String address) {
        this.address = address;
        this.admin = Admin.create(common());
    }

    public static void main(String[] arguments) throws Exception {
        InteropClient client = new InteropClient(arguments[0]);
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            try {
                client.run(line.split("\t", -1));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                int code = cause instanceof OffsetOutOfRangeException ? 1 : Errors.forException(cause).code();
                say("error", code, cause.toString().replace('\n', ' ').replace('\t', ' '));
            }
            say("done");
            OUT.flush();
        }
        client.admin.close(TIMEOUT);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "produce" -> produce(words);
            case "consume" -> consume(partition(words), Long.parseLong(words[3]), Integer.parseInt(words[4]), words[5]);
            case "offsets" -> offsets(partition(words));
            case "time" -> time(partition(words), Long.parseLong(words[3]));
            case "create" -> create(words);
            case "delete" -> await(admin.deleteTopics(List.of(words[1])).all());
            case "topics" -> await(admin.listTopics().names()).forEach(name -> say("topic", name));
            case "describe" -> say(
                "partitions", await(admin.describeTopics(List.of(words[1])).allTopicNames()).get(words[1]).partitions().size());
            case "partitions" -> await(
                admin.createPartitions(Map.of(words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])))).all());
            case "configs" -> configs(topic(words[1]));
            case "alter" -> alter(topic(words[1]), words);
            case "delete-records" -> say("low", await(
                admin.deleteRecords(Map.of(partition(words), RecordsToDelete.beforeOffset(Long.parseLong(words[3]))))
                    .lowWatermarks().get(partition(words))).lowWatermark());
            case "brokers" -> {
                for (Node node : await(admin.describeCluster().nodes())) {
                    say("broker", node.id(), node.host(), node.port());
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("request.timeout.ms", "20000");
        properties.put("default.api.timeout.ms", "20000");
        return properties;
    }

    private void produce(String[] words) throws Exception {
        Properties properties = common();
        properties.put("compression.type", words[3]);
        properties.put("acks", words[4]);
        properties.put("enable.idempotence", words[5]);
        properties.put("linger.ms", "500");
        properties.put("batch.size", "1000000");
        properties.put("max.request.size", "4000000");
        properties.put("buffer.memory", "8000000");
        properties.put("delivery.timeout.ms", "25000");
        Integer partition = words[2].equals("-") ? null : Integer.valueOf(words[2]);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> lines = new ArrayList<>();
        for (int left = Integer.parseInt(words[6]); left > 0; left--) {
            lines.add(IN.readLine());
        }
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line : lines) {
                String[] fields = line.split("\t", -1);
                Long timestamp = fields[2].equals("-") ? null : Long.valueOf(fields[2]);
                sent.add(producer.send(new ProducerRecord<>(
                    words[1], partition, timestamp, decoded(fields[0]), decoded(fields[1]), headers(fields[3]))));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = await(future);
            say("placed", metadata.partition(), metadata.hasOffset() ? metadata.offset() : -1);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Properties properties = common();
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", isolation);
        properties.put("fetch.max.wait.ms", "50");
        properties.put("max.partition.fetch.bytes", "4000000");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void consume(TopicPartition source, long offset, int count, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation)) {
            consumer.assign(List.of(source));
            consumer.seek(source, offset);
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            int got = 0;
            while (got < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (got++ < count) {
                        sayRecord(record);
                    }
                }
            }
        }
    }

    private static void sayRecord(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(encoded(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)) + ":" + encoded(header.value()));
        }
        say("record", record.partition(), record.offset(), record.timestamp(), record.timestampType().id,
            encoded(record.key()), encoded(record.value()), String.join(",", headers));
    }

    private void offsets(TopicPartition source) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            say("offsets", consumer.beginningOffsets(List.of(source)).get(source),
                consumer.endOffsets(List.of(source)).get(source));
        }
    }

    private void time(TopicPartition source, long timestamp) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(source, timestamp)).get(source);
            say("offset", found == null ? "-" : found.offset());
        }
    }

    private void create(String[] words) throws Exception {
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), Short.parseShort(words[3]));
        Map<String, String> configs = new java.util.HashMap<>();
        for (int index = 5; index + 1 < words.length; index += 2) {
            configs.put(words[index], words[index + 1]);
        }
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(Boolean.parseBoolean(words[4]));
        await(admin.createTopics(List.of(topic.configs(configs)), options).all());
    }

    private void configs(ConfigResource resource) throws Exception {
        for (ConfigEntry entry : await(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()) {
            say("config", entry.name(), entry.value() == null ? "-" : entry.value());
        }
    }

    private void alter(ConfigResource resource, String[] words) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        for (int index = 2; index + 1 < words.length; index += 2) {
            changes.add(new AlterConfigOp(new ConfigEntry(words[index], words[index + 1]), AlterConfigOp.OpType.SET));
        }
        await(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    private static TopicPartition partition(String[] words) {
        return new TopicPartition(words[1], Integer.parseInt(words[2]));
    }

    private static ConfigResource topic(String name) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.get(TIMEOUT.toSeconds(), java.util.concurrent.TimeUnit.SECONDS);
    }

    private static byte[] decoded(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String encoded(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static List<Header> headers(String text) {
        List<Header> headers = new ArrayList<>();
        for (String part : text.isEmpty() ? new String[0] : text.split(",", -1)) {
            String[] pair = part.split(":", -1);
            headers.add(new RecordHeader(new String(decoded(pair[0]), java.nio.charset.StandardCharsets.UTF_8), decoded(pair[1])));
        }
        return headers;
    }

    private static void say(Object... words) {
        List<String> texts = new ArrayList<>();
        for (Object word : words) {
            texts.add(String.valueOf(word));
        }
        OUT.println(String.join("\t", texts));
    }
}
