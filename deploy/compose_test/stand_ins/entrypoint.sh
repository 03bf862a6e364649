#!/bin/bash
# A ZooKeeper server configured by the environment, as the official image's is.
set -euo pipefail
{
    echo "dataDir=/data"
    echo "dataLogDir=/datalog"
    echo "tickTime=${ZOO_TICK_TIME:-2000}"
    echo "initLimit=5"
    echo "syncLimit=2"
    echo "standaloneEnabled=$ZOO_STANDALONE_ENABLED"
    echo "admin.enableServer=$ZOO_ADMINSERVER_ENABLED"
    echo "autopurge.purgeInterval=$ZOO_AUTOPURGE_PURGEINTERVAL"
    tr ' ' '\n' <<<"$ZOO_SERVERS"
} >/tmp/zoo.cfg
echo "$ZOO_MY_ID" >/data/myid
exec java "-Xmx${ZK_SERVER_HEAP}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/zookeeper/*' \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
