// What a JavaScript program does when the answer to its commit is lost, and what the judge says of it.
// `npm install && npm test`; `oncelog` must be on the path, or ONCELOG says where it is.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import kafkajs from "kafkajs";
import { Oncelog } from "./oncelog.js";

const oncelog = new Oncelog();
before(() => oncelog.start(), { timeout: 120_000 });
after(() => oncelog.stop());

async function write(topic, invoice) {
  const kafka = new kafkajs.Kafka({
    brokers: [oncelog.address],
    requestTimeout: 2000,
    logLevel: kafkajs.logLevel.NOTHING,
  });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  await admin.disconnect();
  const producer = kafka.producer({ transactionalId: "billing", maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const transaction = await producer.transaction();
  await transaction.send({ topic, messages: [{ value: invoice }] });
  await transaction.commit();
  await producer.disconnect();
}

function history(topic, value, end) {
  return {
    transactions: [{ id: "1", producer: "billing", end }],
    sends: [{ producer: "billing", topic, value, transaction: "1", outcome: "acknowledged" }],
    topics: [topic],
  };
}

test("an invoice is there once though the answer to its commit is lost", { timeout: 120_000 }, async () => {
  const lost = await oncelog.fail({ point: "EndTxn.answer", drop: true, transactional_id: "billing" });
  let end = "committed";
  try {
    await write("invoices", "invoice 1");
  } catch {
    end = "unknown"; // kafkajs does not ask again: the application must find out
  }
  assert.equal(await oncelog.struck(lost), 1);
  const found = await oncelog.verdict(history("invoices", "invoice 1", end));
  assert.ok(found.exactly_once, found.verdict);
});

test("the judge finds an invoice that is there twice", { timeout: 120_000 }, async () => {
  await write("twice", "invoice 2");
  await write("twice", "invoice 2");
  const found = await oncelog.verdict(history("twice", "invoice 2", "committed"));
  assert.deepEqual(found.violations.map((violation) => violation.kind), ["TWICE"]);
});
