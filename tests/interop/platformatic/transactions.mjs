// Transactions of @platformatic/kafka: node transactions.mjs HOST:PORT TOPIC. It prints what a committed reader sees.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

// The library asks for Node 22; this is all that it lacks in Node 20.
Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

const [address, topic] = process.argv.slice(2)
const common = { bootstrapBrokers: [address], retries: 20, retryDelay: 250 }

const admin = new Admin({ clientId: 'admin', ...common })
await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 })

const producer = new Producer({
  clientId: 'writer',
  idempotent: true,
  transactionalId: `${topic}-writer`,
  serializers: stringSerializers,
  ...common
})

async function transaction (values, ends) {
  const open = await producer.beginTransaction()
  await open.send({ messages: values.map(value => ({ topic, partition: 0, key: 'k', value })) })
  await ends(open)
}

await transaction(['committed-1', 'committed-2'], open => open.commit())
await transaction(['aborted'], open => open.abort())
await transaction(['committed-3'], open => open.commit())

const consumer = new Consumer({
  clientId: 'reader',
  groupId: `${topic}-readers`,
  deserializers: stringDeserializers,
  isolationLevel: 1,
  ...common
})
const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false, maxWaitTime: 500 })
const seen = []
for await (const message of stream) {
  seen.push(message.value)
  if (seen.length === 3) {
    const open = await producer.beginTransaction()
    await open.addConsumer(consumer)
    await open.addOffset(message)
    await open.commit()
    break
  }
}
console.log(JSON.stringify(seen))
await stream.close()
await consumer.close(true)
await producer.close(true)
await admin.close()
