package durable

import (
	"bytes"
	"testing"
)

// TestNarrow: a file that cannot have its ACL allows no user more than with it.
func TestNarrow(t *testing.T) {
	t.Parallel()
	list := func(nobody, group, mask uint16) acl {
		return acl{{aclOwner, 6, 0}, {aclUser, nobody, 65534}, {aclGroupObj, group, 0}, {aclMask, mask, 0}, {aclOther, 4, 0}}
	}
	tests := []struct {
		name string
		acl  acl
		mode uint32
		want uint32
	}{
		{"the mask is not the group's", list(6, 0, 6), 0o664, 0o604},
		{"the group's entry is limited by the mask", list(6, 6, 4), 0o644, 0o644},
		{"a user who is denied is denied as one of the group and of the others", list(0, 4, 4), 0o644, 0o600},
		{"configured mode", list(6, 0, 6), 0o640, 0o600},
		{"set-id bits stay", list(4, 5, 5), 0o4754, 0o4744},
	}
	for _, tt := range tests {
		if got := tt.acl.narrow(tt.mode); got != tt.want {
			t.Errorf("%s: got %o, want %o", tt.name, got, tt.want)
		}
	}
}

func TestParseACL(t *testing.T) {
	t.Parallel()
	want := acl{{aclOwner, 6, 0xffffffff}, {aclUser, 4, 65534}, {aclOther, 0, 0xffffffff}}.bytes()
	got, err := parseACL(want)
	if err != nil || !bytes.Equal(got.bytes(), want) {
		t.Errorf("got %x, %v, want %x", got.bytes(), err, want)
	}
	for _, b := range [][]byte{nil, {2}, {1, 0, 0, 0}, {2, 0, 0, 0, 1}} {
		if got, err := parseACL(b); err == nil {
			t.Errorf("%x: got %v, want an error", b, got)
		}
	}
}
