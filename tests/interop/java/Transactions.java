import java.util.*;
import java.time.Duration;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.*;

/** Transactions of Java's client, told line by line: `Transactions ADDRESS INPUT OUTPUT`. Both topics exist, empty. */
public class Transactions {
    static String address, input, output;

    static KafkaProducer<String, String> producer(String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        if (id != null) {
            settings.put("transactional.id", id);
        }
        KafkaProducer<String, String> made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        if (id != null) {
            made.initTransactions();
        }
        return made;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "3");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Consume, process, produce; every second transaction is aborted and its records are read again. */
    static void pipe(int count) {
        try (KafkaProducer<String, String> plain = producer(null)) {
            for (int i = 0; i < count; i++) {
                plain.send(new ProducerRecord<>(input, 0, null, "" + i));
            }
        }
        int done = 0, attempts = 0;
        try (KafkaConsumer<String, String> in = consumer(input); KafkaProducer<String, String> out = producer(output)) {
            in.subscribe(List.of(input));
            while (done < count) {
                ConsumerRecords<String, String> records = in.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                TopicPartition source = new TopicPartition(input, 0);
                long first = records.records(source).get(0).offset(), next = first;
                out.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    out.send(new ProducerRecord<>(output, (int) (record.offset() % 2), null, record.value()));
                    next = record.offset() + 1;
                }
                out.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(next)), in.groupMetadata());
                if (attempts++ % 2 == 0) {
                    out.abortTransaction();
                    in.seek(source, first);
                } else {
                    out.commitTransaction();
                    done = (int) next;
                }
            }
            System.out.println("offset " + in.committed(Set.of(new TopicPartition(input, 0))).values().iterator().next().offset());
        }
    }

    static void fence() {
        KafkaProducer<String, String> old = producer("fenced"), now;
        old.beginTransaction();
        old.send(new ProducerRecord<>(output, 0, null, "old"));
        old.flush();
        now = producer("fenced");
        now.beginTransaction();
        now.send(new ProducerRecord<>(output, 0, null, "new"));
        now.commitTransaction();
        try {
            old.send(new ProducerRecord<>(output, 0, null, "late"));
            old.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            System.out.println("fenced");
        }
        old.close(Duration.ZERO);
        now.close();
    }

    public static void main(String[] arguments) {
        address = arguments[0];
        input = arguments[1];
        output = arguments[2];
        pipe(20);
        fence();
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = consumer(output + "-reader")) {
            List<TopicPartition> all = List.of(new TopicPartition(output, 0), new TopicPartition(output, 1));
            reader.assign(all);
            reader.seekToBeginning(all);
            Map<TopicPartition, Long> ends = reader.endOffsets(all);
            while (all.stream().anyMatch(where -> reader.position(where) < ends.get(where))) {
                reader.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
            }
        }
        Collections.sort(values);
        System.out.println("values " + String.join(" ", values));
    }
}
