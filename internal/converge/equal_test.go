package converge

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// TestEachFieldIsCompared: a field that is added to what a host reports, or to what its readers are woken for, makes
// a difference, unless it is named here: times of what did not change, and what follows from other fields.
func TestEachFieldIsCompared(t *testing.T) {
	t.Parallel()
	var state cluster.CategoryState
	eachField(t, &state, []string{"Since", "Began", "Reported"}, func() bool { return same(&state, &cluster.CategoryState{}) })
	var r report
	eachField(t, &r, nil, func() bool { return r.equal(report{}) })
	var s Status
	eachField(t, &s, []string{"Since", "Attempt", "Why", "Next", "History"}, func() bool { return s.sameAs(Status{}) })
}

// eachField sets one field of *v after the other, and expects that equal notices all but those of free.
func eachField[T any](t *testing.T, v *T, free []string, equal func() bool) {
	t.Helper()
	if !equal() {
		t.Errorf("%T: an empty one is not equal to itself", *v)
	}
	for f := range reflect.TypeFor[T]().Fields() {
		if !f.IsExported() {
			continue
		}
		var zero T
		*v = zero
		reflect.ValueOf(v).Elem().FieldByIndex(f.Index).Set(something(t, f.Type))
		if got, want := equal(), slices.Contains(free, f.Name); got != want {
			t.Errorf("%T: with another %s equal = %t, want %t", *v, f.Name, got, want)
		}
	}
}

// something is a value of a type that is not its zero.
func something(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(of, 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
	case reflect.Struct:
		if of == reflect.TypeFor[time.Time]() {
			return reflect.ValueOf(time.Unix(1, 0))
		}
		v.Field(0).Set(something(t, of.Field(0).Type))
	default:
		t.Fatalf("no value of the kind %s", of.Kind())
	}
	return v
}
