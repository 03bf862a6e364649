// A member of a group with the consumer protocol (KIP-848): node member.mjs HOST:PORT,... TOPIC GROUP. For each record it
// prints a line `PARTITION OFFSET VALUE`, and commits the offset; SIGTERM lets it leave the group.
import { Consumer, stringDeserializers } from '@platformatic/kafka'

// The library asks for Node 22; this is all that it lacks in Node 20.
Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

const [addresses, topic, groupId] = process.argv.slice(2)
const consumer = new Consumer({
  clientId: 'member',
  groupId,
  groupProtocol: 'consumer',
  groupRemoteAssignor: 'uniform',
  bootstrapBrokers: addresses.split(','),
  deserializers: stringDeserializers,
  retries: 100,
  retryDelay: 200
})
const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 200 })
process.on('SIGTERM', async () => {
  await stream.close()
  await consumer.close(true)
  process.exit(0)
})
for await (const message of stream) {
  console.log(`${message.partition} ${message.offset} ${message.value}`)
  await message.commit()
}
