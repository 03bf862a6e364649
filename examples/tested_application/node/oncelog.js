// A broker with its fail control, and a judge of histories, in processes that end with this one.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const COMMAND = process.env.ONCELOG ?? "oncelog";

export class Oncelog {
  #processes = [];

  async start() {
    this.directory = await mkdtemp(join(tmpdir(), "oncelog-"));
    const serve = ["serve", "--data", join(this.directory, "data"), "--stop-at-eof", "--fail-control", "0"];
    const broker = this.#lines([...serve, "--set", "listeners=PLAINTEXT://127.0.0.1:0"]);
    this.address = await found(/ready on (\S+) /, broker);
    this.control = await found(/fail control at (\S+)/, broker);
    this.judge = await found(/(http:\S+)/, this.#lines(["judge", "-b", this.address, "--stop-at-eof"]));
    return this;
  }

  // Orders one thing to go wrong, and returns the id of the order.
  async fail(order) {
    return (await post(`${this.control}/faults`, order)).id;
  }

  // How often it has happened.
  async struck(fault) {
    return (await json(await fetch(`${this.control}/faults/${fault}`))).struck;
  }

  async verdict(history) {
    return post(`${this.judge}/verdict`, history);
  }

  async stop() {
    for (const child of this.#processes) {
      const ended = once(child, "exit");
      child.stdin.end();
      await ended;
    }
    await rm(this.directory, { recursive: true });
  }

  #lines(argumentsOfIt) {
    const child = spawn(COMMAND, argumentsOfIt, { stdio: ["pipe", "pipe", "inherit"] });
    this.#processes.push(child);
    return createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }
}

async function found(pattern, lines) {
  const { value: line } = await lines.next();
  const match = pattern.exec(line ?? "");
  if (match === null) throw new Error(`oncelog did not say ${pattern}, but: ${line}`);
  return match[1];
}

async function post(url, body) {
  const headers = { "Content-Type": "application/json" };
  return json(await fetch(url, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function json(answer) {
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  return answer.json();
}
