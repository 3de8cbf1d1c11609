package profile

// Conform returns v as the schema of param key asks for it: where that accepts
// strings only, a number, boolean, object or array that ParseValue read is the
// text it was read from. Any other value stays as it is.
func (d Document) Conform(key string, v Value) Value {
	schema, ok := d.Schemas[key].tree.(map[string]any)
	if !ok || v.text == "" || len(v.text) > MaxSize || !stringsOnly(schema["type"]) {
		return v
	}
	return Value{tree: v.text}
}

// conform returns r with values as the schema of param key asks for them.
func (d Document) conform(key string, r Ref) Ref {
	for _, v := range []**Value{&r.Value, &r.Default} {
		if *v != nil {
			conforming := d.Conform(key, **v)
			*v = &conforming
		}
	}
	return r
}

// stringsOnly reports whether a schema's "type" is that of strings.
func stringsOnly(kind any) bool {
	if list, ok := kind.([]any); ok && len(list) == 1 {
		kind = list[0]
	}
	return kind == "string"
}
