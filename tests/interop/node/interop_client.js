// kafkajs behind the commands of line_client.py: tab-separated words in, tab-separated lines out.
//
// kafkajs consumes through groups only. Here records are read with its own Fetch requests and decoder, below its
// consumer, by offset: `cluster` is what its consumer uses.
'use strict'

const readline = require('readline')
const kafkajs = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const createSocket = require('kafkajs/src/network/socketFactory')
const { createLogger, LEVELS } = require('kafkajs/src/loggers')
const consoleLogger = require('kafkajs/src/loggers/console')
const snappy = require('kafkajs-snappy')
const { ZstdCodec } = require('zstd-codec')

const { CompressionTypes, CompressionCodecs, ConfigResourceTypes } = kafkajs
const TIMEOUT_MS = 20000

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  // Streaming: not every client says in the frame how large the content is.
  decompress: async buffer => Buffer.from((await zstdStreaming).decompress(buffer)),
})
const zstd = new Promise(resolve => ZstdCodec.run(codec => resolve(new codec.Simple())))
const zstdStreaming = new Promise(resolve => ZstdCodec.run(codec => resolve(new codec.Streaming())))

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  zstd: CompressionTypes.ZSTD,
}

const brokers = process.argv[2].split(',')
const retry = { retries: 2 }
const kafka = new kafkajs.Kafka({ brokers, logLevel: LEVELS.NOTHING, requestTimeout: TIMEOUT_MS, retry })
const admin = kafka.admin()

const say = (...words) => process.stdout.write(words.join('\t') + '\n')
const encoded = bytes => (bytes == null ? '-' : Buffer.from(bytes).toString('base64'))
const decoded = text => (text === '-' ? null : Buffer.from(text, 'base64'))

const headersOf = text => {
  const headers = {}
  for (const part of text ? text.split(',') : []) {
    const [name, value] = part.split(':').map(decoded)
    headers[name] = name in headers ? [].concat(headers[name], [value]) : value
  }
  return headers
}

const headersText = headers =>
  Object.entries(headers)
    .flatMap(([name, values]) => [].concat(values).map(value => `${encoded(name)}:${encoded(value)}`))
    .join(',')

const produce = async ([, topic, partition, codec, acks, idempotent], lines) => {
  const producer = kafka.producer({
    idempotent: idempotent === 'true',
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  try {
    const messages = lines.map(line => {
      const [key, value, timestamp, headers] = line.split('\t')
      return {
        key: decoded(key),
        value: decoded(value),
        timestamp: timestamp === '-' ? undefined : timestamp,
        headers: headersOf(headers),
        partition: partition === '-' ? undefined : Number(partition),
      }
    })
    const answers = await producer.send({ topic, acks: Number(acks), compression: CODECS[codec], messages })
    // One answer per partition, with the offset of its first record: records follow in their order.
    const next = new Map((answers || []).map(answer => [answer.partition, Number(answer.baseOffset)]))
    const partitioner = kafkajs.Partitioners.DefaultPartitioner()
    const metadata = [...next.keys()].length ? await partitionMetadata(topic) : []
    for (const message of messages) {
      const chosen = message.partition ?? partitioner({ topic, partitionMetadata: metadata, message })
      const offset = next.has(chosen) ? next.get(chosen) : -1
      say('placed', chosen, Number(acks) === 0 ? -1 : offset)
      next.set(chosen, offset + 1)
    }
  } finally {
    await producer.disconnect()
  }
}

const partitionMetadata = async topic => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions

const consume = async ([, topic, partition, offset, count, isolation]) => {
  const logger = createLogger({ level: LEVELS.NOTHING, logCreator: consoleLogger })
  const cluster = new Cluster({
    logger,
    socketFactory: createSocket(),
    brokers,
    clientId: 'interop',
    connectionTimeout: TIMEOUT_MS,
    requestTimeout: TIMEOUT_MS,
    enforceRequestTimeout: true,
    metadataMaxAge: 300000,
    retry,
    allowAutoTopicCreation: false,
    offsets: new Map(),
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const leaders = cluster.findLeaderForPartitions(topic, [Number(partition)])
    const broker = await cluster.findBroker({ nodeId: Object.keys(leaders)[0] })
    const deadline = Date.now() + TIMEOUT_MS
    let next = BigInt(offset)
    let left = Number(count)
    while (left > 0 && Date.now() < deadline) {
      const partitions = [{ partition: Number(partition), fetchOffset: String(next), maxBytes: 4000000 }]
      const { responses } = await broker.fetch({
        maxWaitTime: 1000,
        minBytes: 1,
        maxBytes: 8000000,
        isolationLevel: isolation === 'read_committed' ? 1 : 0,
        topics: [{ topic, partitions }],
      })
      for (const message of responses[0].partitions[0].messages) {
        if (BigInt(message.offset) < next || left === 0) continue
        const type = (message.batchContext || {}).timestampType ?? 0
        const time = type === 1 ? message.batchContext.maxTimestamp : message.timestamp
        say('record', partition, message.offset, time, type, encoded(message.key), encoded(message.value),
          headersText(message.headers))
        next = BigInt(message.offset) + 1n
        left -= 1
      }
    }
  } finally {
    await cluster.disconnect()
  }
}

const offsets = async ([, topic, partition]) => {
  const found = (await admin.fetchTopicOffsets(topic)).find(entry => entry.partition === Number(partition))
  say('offsets', found.low, found.high)
}

const time = async ([, topic, partition, timestamp]) => {
  // Beyond the last record kafkajs answers with the end of the log.
  const same = entry => entry.partition === Number(partition)
  const found = (await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp))).find(same)
  const end = (await admin.fetchTopicOffsets(topic)).find(same)
  say('offset', found.offset === end.high ? '-' : found.offset)
}

const pairs = words => {
  const found = []
  for (let index = 0; index + 1 < words.length; index += 2) found.push({ name: words[index], value: words[index + 1] })
  return found
}

const COMMANDS = {
  produce,
  consume,
  offsets,
  time,
  create: async ([, topic, numPartitions, replicationFactor, validateOnly, ...configs]) => {
    const wanted = {
      topic,
      numPartitions: Number(numPartitions),
      replicationFactor: Number(replicationFactor),
      configEntries: pairs(configs),
    }
    const made = await admin.createTopics({
      topics: [wanted],
      validateOnly: validateOnly === 'true',
      waitForLeaders: false,
    })
    if (!made) throw new kafkajs.KafkaJSProtocolError({ code: 36, type: 'TOPIC_ALREADY_EXISTS', message: topic })
  },
  delete: async ([, topic]) => admin.deleteTopics({ topics: [topic], timeout: TIMEOUT_MS }),
  topics: async () => (await admin.listTopics()).forEach(name => say('topic', name)),
  describe: async ([, topic]) => say('partitions', (await partitionMetadata(topic)).length),
  partitions: async ([, topic, count]) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: Number(count) }], timeout: TIMEOUT_MS }),
  configs: async ([, topic]) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const described = await admin.describeConfigs({ resources, includeSynonyms: false })
    for (const entry of described.resources[0].configEntries) say('config', entry.configName, entry.configValue ?? '-')
  },
  alter: async ([, topic, ...configs]) =>
    admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: pairs(configs) }],
    }),
  'delete-records': async ([, topic, partition, offset]) => {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: Number(partition), offset }] })
    const found = (await admin.fetchTopicOffsets(topic)).find(entry => entry.partition === Number(partition))
    say('low', found.low)
  },
  brokers: async () =>
    (await admin.describeCluster()).brokers.forEach(({ nodeId, host, port }) => say('broker', nodeId, host, port)),
}

// The broker's code: kafkajs wraps its errors, several in one and one in another.
const codeOf = error => {
  if (error == null) return -1
  if (typeof error.code === 'number') return error.code
  const failed = (error.partitions || []).find(partition => partition.error)
  const inner = codeOf(failed ? failed.error : (error.errors || [])[0])
  return inner !== -1 ? inner : codeOf(error.cause || error.originalError)
}

const main = async () => {
  await admin.connect()
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const nextLine = async () => (await lines.next()).value
  for (let line = await nextLine(); line !== undefined; line = await nextLine()) {
    const words = line.split('\t')
    const payload = []
    if (words[0] === 'produce') for (let left = Number(words[6]); left > 0; left -= 1) payload.push(await nextLine())
    try {
      await COMMANDS[words[0]](words, payload)
    } catch (error) {
      say('error', codeOf(error), String(error.stack || error).replace(/[\n\t]/g, ' '))
    }
    say('done')
  }
  await admin.disconnect()
}

main()
