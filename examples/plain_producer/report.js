// A service that runs two steps by itself and reports them: node report.js BOOTSTRAP PREFIX RUN_ID
"use strict";

const path = require("node:path");
const { Kafka, Partitioners, logLevel } = require("kafkajs");
const { Contract, pack } = require("./contract.js");

const [bootstrap, prefix, runId] = process.argv.slice(2);
if (!runId) {
  console.error("usage: node report.js BOOTSTRAP PREFIX RUN_ID");
  process.exit(2);
}

const SOURCE = "plain-producer";
const contract = new Contract(path.join(__dirname, "..", "..", "schemas", "avro"));

// Without a queue a step is observed: its service runs it and only reports.
const plan = {
  steps: [
    { name: "validate", reads: ["order"], writes: ["valid"], goal: "The order can be shipped" },
    { name: "ship", needs: ["validate"], reads: ["valid"], writes: ["parcel"] },
  ],
};

/** Epoch 0 and an attempt number of our own, which grows when we try a step again. */
function attempt(step) {
  return { run_id: runId, source: SOURCE, sent_at_ms: Date.now(), step, epoch: 0, attempt: 1 };
}

function events() {
  const started = {
    run_id: runId,
    source: SOURCE,
    sent_at_ms: Date.now(),
    flow: "plain-order",
    flow_version: 1,
    plan,
    context: pack({ order: { item: "tuning fork", count: 2 } }),
    ttl_ms: 3_600_000,
  };
  return [
    ["RunStarted", started],
    ["StepStarted", attempt("validate")],
    ["StepCompleted", { ...attempt("validate"), ops: pack([["set", ["valid"], true]]) }],
    ["StepStarted", attempt("ship")],
    ["StepProgressed", { ...attempt("ship"), progress: 1 }],
    ["StepCompleted", { ...attempt("ship"), ops: pack([["set", ["parcel"], "P-1"]]), progress: 1 }],
  ];
}

async function main() {
  const kafka = new Kafka({ clientId: SOURCE, brokers: [bootstrap], logLevel: logLevel.ERROR });
  // The default partitioner of this client is Kafka's own murmur2, which the contract asks for.
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  try {
    for (const [kind, record] of events()) {
      const message = { key: runId, value: contract.value(kind, record) };
      const [where] = await producer.send({ topic: `${prefix}.events`, acks: -1, messages: [message] });
      console.log(`${kind} partition ${where.partition} offset ${where.baseOffset}`);
    }
  } finally {
    await producer.disconnect();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
