import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Runs the assignors of Apache Kafka's group coordinator. Each line of input is a group as JSON, each line of output the
 * target assignment of its members: member id -> topic id -> partitions, or for tasks member id -> "active" and
 * "standby" -> subtopology -> partitions.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, PartitionAssignor> PARTITION_ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor(), "simple", new SimpleAssignor());

    public static void main(String[] options) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode group = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            if (group.get("assignor").asText().equals("sticky")) {
                assignTasks(group, answer);
            } else {
                assignPartitions(group, answer);
            }
            System.out.println(answer);
        }
    }

    private static void assignPartitions(JsonNode group, ObjectNode answer) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(id -> topics.add(Uuid.fromString(id.asText())));
            Map<Uuid, Set<Integer>> target = new HashMap<>();
            numbers(member.get("target")).forEach((id, numbers) -> {
                Uuid topic = Uuid.fromString(id);
                target.put(topic, numbers);
                numbers.forEach(n -> owners.computeIfAbsent(topic, t -> new HashMap<>()).put(n, entry.getKey()));
            });
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(target)));
        });
        SubscriptionType type = group.get("homogeneous").asBoolean()
            ? SubscriptionType.HOMOGENEOUS
            : SubscriptionType.HETEROGENEOUS;
        JsonNode partitions = group.get("partitions");
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                JsonNode number = partitions.get(topic.toString());
                return number == null ? -1 : number.asInt();
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        PARTITION_ASSIGNORS.get(group.get("assignor").asText())
            .assign(new GroupSpecImpl(members, type, owners), topics)
            .members()
            .forEach((id, target) -> {
                ObjectNode shown = answer.putObject(id);
                target.partitions().forEach((topic, numbers) -> put(shown, topic.toString(), numbers));
            });
    }

    private static void assignTasks(JsonNode group, ObjectNode answer) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            members.put(entry.getKey(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), numbers(member.get("active")), numbers(member.get("standby")),
                Map.of(), member.get("process").asText(), Map.of(), Map.of(), Map.of()));
        });
        JsonNode subtopologies = group.get("subtopologies");
        TopologyDescriber topology = new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                List<String> names = new ArrayList<>();
                subtopologies.fieldNames().forEachRemaining(names::add);
                return names;
            }

            @Override
            public int maxNumInputPartitions(String name) {
                return subtopologies.get(name).get("tasks").asInt();
            }

            @Override
            public boolean isStateful(String name) {
                return subtopologies.get(name).get("stateful").asBoolean();
            }
        };
        Map<String, String> settings = Map.of("num.standby.replicas", group.get("standbys").asText());
        new StickyTaskAssignor()
            .assign(new org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl(members, settings), topology)
            .members()
            .forEach((id, target) -> {
                ObjectNode shown = answer.putObject(id);
                ObjectNode active = shown.putObject("active");
                target.activeTasks().forEach((name, numbers) -> put(active, name, numbers));
                ObjectNode standby = shown.putObject("standby");
                target.standbyTasks().forEach((name, numbers) -> put(standby, name, numbers));
            });
    }

    private static Map<String, Set<Integer>> numbers(JsonNode node) {
        Map<String, Set<Integer>> numbers = new HashMap<>();
        node.fields().forEachRemaining(entry -> {
            Set<Integer> each = numbers.computeIfAbsent(entry.getKey(), name -> new HashSet<>());
            entry.getValue().forEach(number -> each.add(number.asInt()));
        });
        return numbers;
    }

    private static void put(ObjectNode shown, String name, Set<Integer> numbers) {
        if (!numbers.isEmpty()) {
            new TreeSet<>(numbers).forEach(shown.withArray("/" + name)::add);
        }
    }
}
