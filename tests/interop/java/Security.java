import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logs in again and again, each time with other settings, and says what came of it.
 *
 * <p>The argument is a directory of properties files, of which each is a case: the settings of a client, and "case.do"
 * (write, read, group or transact) with "case.topic". For each, in the order of their names, a line: the name, a tab,
 * and "ok" or the name of the exception's class.
 */
public final class Security {
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  public static void main(String[] arguments) throws Exception {
    try (var files = Files.list(Path.of(arguments[0]))) {
      for (Path file : files.sorted().toList()) {
        Properties settings = new Properties();
        settings.load(Files.newBufferedReader(file, StandardCharsets.UTF_8));
        System.out.println(file.getFileName() + "\t" + outcome(settings));
      }
    }
  }

  private static String outcome(Properties settings) {
    String topic = (String) settings.remove("case.topic");
    String what = (String) settings.remove("case.do");
    settings.put("key.serializer", StringSerializer.class.getName());
    settings.put("value.serializer", StringSerializer.class.getName());
    settings.put("key.deserializer", StringDeserializer.class.getName());
    settings.put("value.deserializer", StringDeserializer.class.getName());
    try {
      switch (what) {
        case "write" -> write(settings, topic);
        case "read" -> read(settings, topic, false);
        case "group" -> read(settings, topic, true);
        case "transact" -> transact(settings, topic);
        default -> throw new IllegalArgumentException(what);
      }
      return "ok";
    } catch (Exception error) {
      Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
      return cause.getClass().getSimpleName();
    }
  }

  private static void write(Properties settings, String topic) throws Exception {
    try (var producer = new KafkaProducer<String, String>(settings)) {
      producer.send(new ProducerRecord<>(topic, 0, "key", "value")).get();
    }
  }

  private static void transact(Properties settings, String topic) throws Exception {
    try (var producer = new KafkaProducer<String, String>(settings)) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(topic, 0, "key", "value")).get();
      producer.commitTransaction();
    }
  }

  private static void read(Properties settings, String topic, boolean inGroup) {
    settings.put("auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<String, String>(settings)) {
      if (inGroup) {
        consumer.subscribe(List.of(topic));
      } else {
        consumer.assign(List.of(new TopicPartition(topic, 0)));
      }
      long until = System.nanoTime() + PATIENCE.toNanos();
      while (System.nanoTime() < until) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (!records.isEmpty()) {
          return;
        }
      }
      throw new IllegalStateException("no record");
    }
  }

  private Security() {}
}
