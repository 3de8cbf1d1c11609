// Reads {schema, documents} from stdin, and prints for each document whether ajv accepts it.
const Ajv = require("ajv");
const { schema, documents } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const validate = new Ajv({ strict: true, strictTypes: false, allowUnionTypes: true, allErrors: false }).compile(schema);
console.log(JSON.stringify(documents.map((d) => validate(d))));
