import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** `mvn test`; `oncelog` must be on the path, or ONCELOG says where it is. */
class BillingTest {
    @Test
    void anInvoiceIsThereOnceThoughTheAnswerToItsCommitIsLost(@TempDir Path directory) throws Exception {
        try (Oncelog oncelog = new Oncelog(directory)) {
            String lost = oncelog.fail("{\"point\": \"EndTxn.answer\", \"drop\": true, \"transactional_id\": \"billing\"}");
            write(oncelog, "invoice 1");
            assertTrue(oncelog.fault(lost).matches("(?s).*\"struck\": *1\\b.*"), oncelog.fault(lost));
            String verdict = oncelog.verdict(history("invoice 1"));
            assertTrue(verdict.contains("\"exactly_once\": true"), verdict);
        }
    }

    @Test
    void theJudgeFindsAnInvoiceThatIsThereTwice(@TempDir Path directory) throws Exception {
        try (Oncelog oncelog = new Oncelog(directory)) {
            write(oncelog, "invoice 1");
            write(oncelog, "invoice 1");
            String verdict = oncelog.verdict(history("invoice 1"));
            assertTrue(verdict.contains("TWICE"), verdict);
        }
    }

    private static void write(Oncelog oncelog, String invoice) {
        Map<String, Object> settings =
                Map.of("bootstrap.servers", oncelog.address, "transactional.id", "billing", "request.timeout.ms", 2000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("invoices", invoice));
            producer.commitTransaction();
        }
    }

    /** What the test did: one record of a committed transaction. */
    private static String history(String invoice) {
        return """
                {"transactions": [{"id": "1", "producer": "billing", "end": "committed"}],
                 "sends": [{"producer": "billing", "topic": "invoices", "value": "%s",
                            "transaction": "1", "outcome": "acknowledged"}],
                 "topics": ["invoices"]}""".formatted(invoice);
    }
}
