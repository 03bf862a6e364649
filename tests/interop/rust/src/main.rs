//! `oncelog-interop HOST:PORT TOPIC`: creates the topic, writes three records as zstd, and prints what it reads.
use std::collections::BTreeMap;

use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (address, topic) = (arguments[1].clone(), arguments[2].clone());
    let client = ClientBuilder::new(vec![address]).build().await?;
    client.controller_client()?.create_topic(topic.clone(), 1, 1, 30_000).await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let records = ["one", "two", "three"]
        .iter()
        .map(|value| Record {
            key: Some(b"k".to_vec()),
            value: Some(value.as_bytes().to_vec()),
            headers: BTreeMap::new(),
            timestamp: chrono::DateTime::from_timestamp_millis(1_700_000_000_000).unwrap(),
        })
        .collect();
    partition.produce(records, Compression::Zstd).await?;
    let mut offset = 0;
    while offset < 3 {
        let (found, _) = partition.fetch_records(offset, 1..1_000_000, 1_000).await?;
        for each in found {
            println!("{}", String::from_utf8(each.record.value.unwrap_or_default())?);
            offset = each.offset + 1;
        }
    }
    Ok(())
}
