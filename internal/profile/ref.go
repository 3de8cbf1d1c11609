package profile

import "slices"

// Ref is what a param must be now for a change to be made; the zero Ref asks
// for nothing. A schema's default never counts: a param that has only that is
// missing, as it is for a plain read.
type Ref struct {
	Value   *Value // the param equals this
	Default *Value // with Value: a missing param counts as this
	Absent  bool   // the param is missing; goes with nothing else
}

// check returns a *MismatchError when p[key] is not what the reference asks
// for, and ErrInvalid for a reference that makes no sense.
func (r Ref) check(p Params, key string) error {
	if r.Absent && (r.Value != nil || r.Default != nil) {
		return invalid("a reference to param %q asks for a value and for none: give one or the other", key)
	}
	if r.Default != nil && r.Value == nil {
		return invalid("a default for param %q needs a reference to compare it with", key)
	}
	have, present := p[key]
	mismatch := &MismatchError{Key: key, Want: r.Value, Have: have, HavePresent: present}
	switch {
	case r.Absent:
		if present {
			return mismatch
		}
	case r.Value == nil:
	case present:
		if !have.Equal(*r.Value) {
			return mismatch
		}
	case r.Default == nil || !r.Default.Equal(*r.Value):
		return mismatch
	}
	return nil
}

// Set returns p with key set to v if ref holds. It returns a *MismatchError or
// ErrInvalid.
func (p Params) Set(key string, v Value, ref Ref) (Params, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if err := ref.check(p, key); err != nil {
		return nil, err
	}
	return p.with(key, v), nil
}

// Remove returns p without key if ref holds; that it is gone already is no
// error. It returns a *MismatchError or ErrInvalid.
func (p Params) Remove(key string, ref Ref) (Params, error) {
	if err := ref.check(p, key); err != nil {
		return nil, err
	}
	return p.without(key), nil
}

// Replace returns p with what differs between before and after as it is in
// after, if all that still is as in before. What before and after agree on is
// neither looked at nor touched. It returns a *MismatchError or ErrInvalid.
func (p Params) Replace(before, after Params) (Params, error) {
	q := p.clone()
	var failed *MismatchError
	for _, key := range differing(before, after) {
		var ref Ref
		if v, ok := before[key]; ok {
			ref.Value = &v
		} else {
			ref.Absent = true
		}
		if err := ref.check(p, key); err != nil {
			mismatch, ok := err.(*MismatchError)
			if !ok {
				return nil, err
			}
			if failed == nil {
				failed = mismatch
			} else {
				failed.More = append(failed.More, key)
			}
			continue
		}
		v, ok := after[key]
		if !ok {
			delete(q, key)
			continue
		}
		if err := checkKey(key); err != nil {
			return nil, err
		}
		q[key] = v
	}
	if failed != nil {
		return nil, failed
	}
	return q, nil
}

// differing returns the names, sorted, of what is not the same in both.
func differing(a, b Params) []string {
	var keys []string
	for key, v := range a {
		if w, ok := b[key]; !ok || !v.Equal(w) {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
