// Stands in for the page: the vocabulary that it gives to scripts.
import { readFileSync } from "node:fs";

const vocabulary = readFileSync(new URL("./vocabulary.json", import.meta.url), "utf8");
globalThis.document = { getElementById: (id) => (id === "vocabulary" ? { textContent: vocabulary } : null) };
