import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** Share groups of Java's client, told line by line: `Shares ADDRESS TOPIC`. The topic exists with one partition, empty. */
public class Shares {
    static final int COUNT = 20;
    static final Duration WAIT = Duration.ofMillis(500);
    static String address, topic, group;
    static TopicPartition partition;

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

    static KafkaShareConsumer<String, String> consumer(String mode) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", mode);
        settings.put("max.poll.records", "3");
        return new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static void configure(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Collection<AlterConfigOp> changes = List.of(
            new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("share.isolation.level", "read_committed"), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    /** Records 0 to 19, of which an aborted transaction separates the first ten from the others. */
    static void produce() {
        try (KafkaProducer<String, String> out = producer(null)) {
            for (int i = 0; i < COUNT / 2; i++) {
                out.send(new ProducerRecord<>(topic, 0, null, "" + i));
            }
        }
        try (KafkaProducer<String, String> out = producer(topic)) {
            out.beginTransaction();
            out.send(new ProducerRecord<>(topic, 0, null, "aborted"));
            out.flush();
            out.abortTransaction();
            out.beginTransaction();
            for (int i = COUNT / 2; i < COUNT; i++) {
                out.send(new ProducerRecord<>(topic, 0, null, "" + i));
            }
            out.commitTransaction();
        }
    }

    /** Two members share the records: 3 is released once, 5 is rejected, 7 is renewed and accepted, the others accepted. */
    static void share(Admin admin) throws Exception {
        SortedMap<Integer, Integer> accepted = new TreeMap<>();
        List<String> told = new ArrayList<>();
        try (KafkaShareConsumer<String, String> one = consumer("explicit"); KafkaShareConsumer<String, String> two = consumer("explicit")) {
            one.subscribe(List.of(topic));
            two.subscribe(List.of(topic));
            while (accepted.size() < COUNT - 1) {
                for (KafkaShareConsumer<String, String> member : List.of(one, two)) {
                    boolean isRenewed = false;
                    for (ConsumerRecord<String, String> record : member.poll(WAIT)) {
                        int number = Integer.parseInt(record.value());
                        short delivery = record.deliveryCount().get();
                        if (number == 3 && delivery == 1) {
                            member.acknowledge(record, AcknowledgeType.RELEASE);
                            told.add("released 3");
                        } else if (number == 5) {
                            member.acknowledge(record, AcknowledgeType.REJECT);
                            told.add("rejected 5");
                        } else if (number == 7 && !told.contains("renewed 7")) {
                            member.acknowledge(record, AcknowledgeType.RENEW);
                            told.add("renewed 7");
                        } else {
                            member.acknowledge(record, AcknowledgeType.ACCEPT);
                            accepted.merge(number, (int) delivery, Integer::sum);
                        }
                    }
                    member.commitSync().values().forEach(error -> error.ifPresent(one_ -> { throw one_; }));
                }
            }
            one.poll(WAIT); // passes the marker behind the last record
            two.poll(WAIT);
            ShareGroupDescription description = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
            System.out.println(description.groupState() + " " + description.members().size());
        }
        Collections.sort(told);
        told.forEach(System.out::println);
        StringBuilder line = new StringBuilder("accepted");
        accepted.forEach((number, delivery) -> line.append(" ").append(number).append(delivery == 1 ? "" : "x" + delivery));
        System.out.println(line);
    }

    static long start(Admin admin) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(List.of(partition))))
            .partitionsToOffsetInfo(group).get().get(partition).startOffset();
    }

    static void administrate(Admin admin) throws Exception {
        long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().get(partition).offset();
        System.out.println("at the end " + (start(admin) == end));
        admin.alterShareGroupOffsets(group, Map.of(partition, 0L)).all().get();
        System.out.println("altered " + start(admin));
        List<String> values = new ArrayList<>();
        try (KafkaShareConsumer<String, String> again = consumer("implicit")) {
            again.subscribe(List.of(topic));
            while (values.size() < COUNT) {
                again.poll(WAIT).forEach(record -> values.add(record.value()));
            }
            again.poll(WAIT); // accepts what came last
        }
        System.out.println("again " + String.join(" ", values));
        System.out.println("at the end " + (start(admin) == end));
        boolean isListed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
            .anyMatch(listing -> listing.groupId().equals(group));
        System.out.println("listed " + isListed);
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        admin.deleteShareGroups(List.of(group)).all().get();
        isListed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
            .anyMatch(listing -> listing.groupId().equals(group));
        System.out.println("listed " + isListed);
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        topic = arguments[1];
        group = topic + "-shares";
        partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) address))) {
            configure(admin);
            produce();
            share(admin);
            administrate(admin);
        }
    }
}
