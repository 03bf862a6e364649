import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of two applications, exactly_once_v2, until SIGTERM:
 * `CountAndCopy ADDRESS PREFIX STATE-DIRECTORY [KEY=VALUE...]`. Further settings replace those below; without a value
 * they remove them.
 *
 * PREFIX-count: PREFIX-lines to PREFIX-counts, a word and how often it has come, with each occurrence (no cache).
 * PREFIX-copy: PREFIX-lines to PREFIX-copies, each line as it is.
 */
public class CountAndCopy {
    static Properties settings(String address, String application, String directory, List<String> further) {
        Properties settings = new Properties();
        settings.put("application.id", application);
        settings.put("bootstrap.servers", address);
        settings.put("state.dir", directory + "/" + application);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", "3");
        settings.put("num.stream.threads", "1");
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "1000");
        settings.put("consumer.max.poll.records", "100");
        settings.put("producer.delivery.timeout.ms", "60000");
        settings.put("producer.request.timeout.ms", "10000");
        settings.put("producer.max.block.ms", "60000");
        for (String setting : further) {
            String[] parts = setting.split("=", 2);
            if (parts[1].isEmpty()) {
                settings.remove(parts[0]);
            } else {
                settings.put(parts[0], parts[1]);
            }
        }
        return settings;
    }

    static KafkaStreams start(StreamsBuilder builder, Properties settings) {
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println("a thread of " + settings.get("application.id") + " is replaced");
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        return streams;
    }

    public static void main(String[] arguments) {
        String address = arguments[0], prefix = arguments[1], directory = arguments[2], lines = prefix + "-lines";
        List<String> further = Arrays.asList(arguments).subList(3, arguments.length);
        var strings = Serdes.String();

        StreamsBuilder count = new StreamsBuilder();
        count.stream(lines, Consumed.with(strings, strings))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", strings, strings))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(strings).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(number -> number.toString())
            .to(prefix + "-counts", Produced.with(strings, strings));

        StreamsBuilder copy = new StreamsBuilder();
        copy.stream(lines, Consumed.with(strings, strings))
            .to(prefix + "-copies", Produced.with(strings, strings));

        List<KafkaStreams> both = List.of(
            start(count, settings(address, prefix + "-count", directory, further)),
            start(copy, settings(address, prefix + "-copy", directory, further)));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> both.forEach(each -> each.close(Duration.ofSeconds(20)))));
    }
}
