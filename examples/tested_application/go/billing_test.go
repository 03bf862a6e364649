// What a Go program does when the answer to its EndTxn is lost: the broker is told over HTTP to lose it, and a judge says
// whether everything is there once.
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

// Broker is `oncelog serve`, with `oncelog judge`, in processes of their own, which end with ours: we hold the other end
// of their input.
type Broker struct {
	Address string
	control string
	judge   string
}

func start(t *testing.T) *Broker {
	t.Helper()
	broker := &Broker{}
	output := run(t, "serve", "--data", t.TempDir(), "--stop-at-eof", "--fail-control", "0",
		"--set", "listeners=PLAINTEXT://127.0.0.1:0")
	broker.Address = next(t, output, `ready on (\S+) `)
	broker.control = next(t, output, `fail control at (\S+)`)
	broker.judge = next(t, run(t, "judge", "-b", broker.Address, "--stop-at-eof"), `(http:\S+)`)
	return broker
}

// run starts oncelog, and returns its output.
func run(t *testing.T, arguments ...string) *bufio.Scanner {
	t.Helper()
	oncelog := os.Getenv("ONCELOG")
	if oncelog == "" {
		oncelog = "oncelog"
	}
	command := exec.Command(oncelog, arguments...)
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	command.Stderr = os.Stderr
	must(t, command.Start())
	t.Cleanup(func() { input.Close(); command.Wait() })
	return bufio.NewScanner(output)
}

// next finds a pattern in the next line.
func next(t *testing.T, output *bufio.Scanner, pattern string) string {
	t.Helper()
	output.Scan()
	found := regexp.MustCompile(pattern).FindStringSubmatch(output.Text())
	if found == nil {
		t.Fatalf("oncelog did not say %s, but: %s", pattern, output.Text())
	}
	return found[1]
}

// Judge says whether what the test has recorded is there once.
func (broker *Broker) Judge(t *testing.T, history map[string]any) map[string]any {
	t.Helper()
	body, err := json.Marshal(history)
	must(t, err)
	answer, err := http.Post(broker.judge+"/verdict", "application/json", bytes.NewReader(body))
	must(t, err)
	return decoded(t, answer)
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

	verdict := broker.Judge(t, map[string]any{
		"transactions": []any{map[string]any{"id": "1", "producer": "billing", "end": "committed"}},
		"sends": []any{map[string]any{"producer": "billing", "topic": "invoices", "value": "invoice 1",
			"transaction": "1", "outcome": "acknowledged"}},
		"topics": []any{"invoices"},
	})
	if verdict["exactly_once"] != true {
		t.Fatal(verdict["verdict"])
	}
}
