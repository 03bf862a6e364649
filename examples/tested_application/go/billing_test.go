// What a Go program does when the answer to its EndTxn is lost: the broker is told over HTTP to lose it.
// `go test` in this directory; `oncelog` must be on the path, or ONCELOG says where it is.
package billing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Broker is `oncelog serve` in a process of its own, which ends with ours: we hold the other end of its input.
type Broker struct {
	Address string
	control string
}

var lines = regexp.MustCompile(`ready on (\S+) |fail control at (\S+)`)

func start(t *testing.T) *Broker {
	t.Helper()
	oncelog := os.Getenv("ONCELOG")
	if oncelog == "" {
		oncelog = "oncelog"
	}
	command := exec.Command(oncelog, "serve", "--data", t.TempDir(), "--stop-at-eof", "--fail-control", "0",
		"--set", "listeners=PLAINTEXT://127.0.0.1:0")
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	command.Stderr = os.Stderr
	must(t, command.Start())
	t.Cleanup(func() { input.Close(); command.Wait() })
	broker := &Broker{}
	for scanner := bufio.NewScanner(output); broker.control == "" && scanner.Scan(); {
		if found := lines.FindStringSubmatch(scanner.Text()); found != nil {
			broker.Address, broker.control = broker.Address+found[1], found[2]
		}
	}
	if broker.control == "" {
		t.Fatal("the broker does not start")
	}
	return broker
}

// Fail orders one thing to go wrong, and returns the id of the order.
func (broker *Broker) Fail(t *testing.T, order map[string]any) int {
	t.Helper()
	body, err := json.Marshal(order)
	must(t, err)
	answer, err := http.Post(broker.control+"/faults", "application/json", bytes.NewReader(body))
	must(t, err)
	return int(decoded(t, answer)["id"].(float64))
}

// Struck says how often it has happened.
func (broker *Broker) Struck(t *testing.T, fault int) int {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("%s/faults/%d", broker.control, fault))
	must(t, err)
	return int(decoded(t, answer)["struck"].(float64))
}

func decoded(t *testing.T, answer *http.Response) map[string]any {
	t.Helper()
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", answer.Status, content)
	}
	var fields map[string]any
	must(t, json.Unmarshal(content, &fields))
	return fields
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnInvoiceIsThereOnceThoughTheAnswerToItsCommitIsLost(t *testing.T) {
	broker := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Address), kgo.TransactionalID("billing"),
		kgo.DefaultProduceTopic("invoices"), kgo.AllowAutoTopicCreation())
	must(t, err)
	defer producer.Close()

	lost := broker.Fail(t, map[string]any{"point": "EndTxn.answer", "drop": true, "transactional_id": "billing"})
	must(t, producer.BeginTransaction())
	must(t, producer.ProduceSync(ctx, kgo.StringRecord("invoice 1")).FirstErr())
	must(t, producer.EndTransaction(ctx, kgo.TryCommit))
	if struck := broker.Struck(t, lost); struck != 1 {
		t.Fatalf("the answer was lost %d times, not once", struck)
	}

	must(t, producer.BeginTransaction())
	must(t, producer.ProduceSync(ctx, kgo.StringRecord("the last one")).FirstErr())
	must(t, producer.EndTransaction(ctx, kgo.TryCommit))
	consumer, err := kgo.NewClient(kgo.SeedBrokers(broker.Address), kgo.ConsumeTopics("invoices"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	defer consumer.Close()
	var read []string
	for len(read) == 0 || read[len(read)-1] != "the last one" {
		fetches := consumer.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { read = append(read, string(record.Value)) })
	}
	if fmt.Sprint(read) != "[invoice 1 the last one]" {
		t.Fatalf("read %v", read)
	}
}
