package gossip

import (
	"bytes"
	"encoding/binary"
)

// packMap, packText and packUint append MessagePack: what memberlist writes.
func packMap(p []byte, n int) []byte { return append(p, 0x80|byte(n)) }

func packText(p []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(p, 0xa0|byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint16(append(p, 0xda), uint16(len(s))), s...)
}

func packUint(p []byte, v uint64) []byte {
	if v < 128 {
		return append(p, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(p, 0xce), uint32(v))
}

// number32 is the number that follows name in a message.
func number32(p []byte, name string) (uint32, bool) {
	at := bytes.Index(p, []byte(name))
	if at < 0 {
		return 0, false
	}
	p = append(bytes.Clone(p[at+len(name):]), 0, 0, 0, 0, 0, 0, 0, 0, 0) // what is cut short reads as zeros
	switch head := p[0]; {
	case head < 128:
		return uint32(head), true
	case head == 0xcc:
		return uint32(p[1]), true
	case head == 0xcd:
		return uint32(binary.BigEndian.Uint16(p[1:])), true
	case head == 0xce:
		return binary.BigEndian.Uint32(p[1:]), true
	case head == 0xcf || head == 0xd3:
		return uint32(binary.BigEndian.Uint64(p[1:])), true
	}
	return 0, false
}

// text is the text that follows name in a message, shorter than 256 bytes.
func text(p []byte, name string) (string, bool) {
	at := bytes.Index(p, packText(nil, name))
	if at < 0 {
		return "", false
	}
	p = p[at+1+len(name):]
	size, head := 0, 1
	switch {
	case len(p) > 0 && p[0] >= 0xa0 && p[0] <= 0xbf:
		size = int(p[0] & 0x1f)
	case len(p) > 1 && (p[0] == 0xd9 || p[0] == 0xc4):
		size, head = int(p[1]), 2
	default:
		return "", false
	}
	if len(p) < head+size {
		return "", false
	}
	return string(p[head : head+size]), true
}
