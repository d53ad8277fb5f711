// The event contract without the SDK: schema files in, Kafka values out.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const avro = require("avsc");
const { encode } = require("@msgpack/msgpack");

const MARKER = Buffer.from([0xc3, 0x01]);

// CRC-64-AVRO, the fingerprint of the Avro specification, as eight little-endian bytes.
const EMPTY = 0xc15d213aa4d7a795n;
const TABLE = Array.from({ length: 256 }, (_, i) => {
  let crc = BigInt(i);
  for (let bit = 0; bit < 8; bit++) crc = (crc >> 1n) ^ (EMPTY & BigInt.asUintN(64, -(crc & 1n)));
  return crc;
});

function fingerprint(type) {
  let crc = EMPTY;
  // avsc gives a type's schema in the specification's canonical form.
  for (const byte of Buffer.from(JSON.stringify(type.schema()), "utf8")) {
    crc = (crc >> 8n) ^ TABLE[Number((crc ^ BigInt(byte)) & 0xffn)];
  }
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(crc);
  return bytes;
}

/** Kafka values by kind, from a folder of `<Kind>/v1.avsc` files. */
class Contract {
  constructor(folder) {
    this.folder = folder;
    this.kinds = new Map();
  }

  /** Marker, fingerprint, body. Fields that the record leaves out take their schema's default. */
  value(kind, record) {
    const { head, type } = this.kinds.get(kind) ?? this.load(kind);
    return Buffer.concat([head, type.toBuffer(record)]);
  }

  load(kind) {
    const text = fs.readFileSync(path.join(this.folder, kind, "v1.avsc"), "utf8");
    const type = avro.Type.forSchema(JSON.parse(text), { wrapUnions: false });
    const entry = { head: Buffer.concat([MARKER, fingerprint(type)]), type };
    this.kinds.set(kind, entry);
    return entry;
  }
}

/** MessagePack for contexts, operations and results. */
function pack(value) {
  return Buffer.from(encode(value));
}

module.exports = { Contract, pack };
