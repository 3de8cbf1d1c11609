package watch

import "github.com/jorc/jorc/internal/profile"

// noParams is the answer where nothing gives params.
const noParams = "no params here: this jorc has no cluster"

// params are the effective params of this host's member; ok is false while they
// are not known.
func (x *execution) params() (p profile.Params, ok bool, err error) {
	if !x.opts.Params {
		return nil, false, x.fail(noParams)
	}
	p, ok = recall[profile.Params](x, &dependency{id: "params", kind: kindParams}, nil)
	return p, ok, nil
}

// param is a param as it is now. One that does not exist is an error: the file
// stays as it is.
func (x *execution) param(name string) (any, error) {
	p, known, err := x.params()
	if err != nil || !known {
		return "", err
	}
	v, ok := p[name]
	if !ok {
		shown := x.show(name)
		return nil, x.fail("param %s does not exist: set it, guard it with {{ if paramExists %s }}, or use {{ paramOr %s DEFAULT }}", shown, shown, shown)
	}
	return v.ForTemplate(), nil
}

// paramExists reports whether there is a param of that name, null included.
func (x *execution) paramExists(name string) (bool, error) {
	p, _, err := x.params()
	_, ok := p[name]
	return ok, err
}

// paramOr is a param as it is now, or fallback where there is none.
func (x *execution) paramOr(name string, fallback any) (any, error) {
	p, _, err := x.params()
	if v, ok := p[name]; ok {
		return v.ForTemplate(), err
	}
	return fallback, err
}
