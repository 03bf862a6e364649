import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/**
 * Clients that push their metrics (KIP-714): `Telemetry ADDRESS TOPIC COUNT`. The topic exists with one partition, empty.
 * It subscribes to the metrics, writes and reads COUNT records, prints the instance ids of producer and consumer, and ends
 * when its standard input does.
 */
public class Telemetry {
    static final Duration WAIT = Duration.ofSeconds(30);

    static Properties settings(String address, String clientId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("client.id", clientId);
        return settings;
    }

    static void subscribe(String address) throws Exception {
        try (Admin admin = Admin.create(settings(address, "admin"))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "measured");
            List<AlterConfigOp> operations = new ArrayList<>();
            Map<String, String> values = Map.of(
                "metrics", "org.apache.kafka.", "interval.ms", "1000", "match", "client_id=measured-.*");
            values.forEach((name, value) ->
                operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
            admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        subscribe(address);
        Properties reading = settings(address, "measured-consumer");
        reading.put("group.id", topic);
        reading.put("group.protocol", "consumer");
        reading.put("auto.offset.reset", "earliest");
        StringSerializer serializer = new StringSerializer();
        StringDeserializer deserializer = new StringDeserializer();
        try (
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(address, "measured-producer"), serializer, serializer);
            KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading, deserializer, deserializer)
        ) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
            }
            producer.flush();
            consumer.subscribe(List.of(topic));
            for (int seen = 0; seen < count; ) {
                seen += consumer.poll(Duration.ofMillis(200)).count();
            }
            System.out.println(producer.clientInstanceId(WAIT));
            System.out.println(consumer.clientInstanceId(WAIT));
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
            }
        }
        System.out.println("closed");
    }
}
