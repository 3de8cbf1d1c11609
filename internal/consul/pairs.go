package consul

import "encoding/base64"

// pickPairs is the answer of a KV list in full.
func pickPairs(s *scanner) (pairs KVPairs) {
	s.array(func() {
		p := &KVPair{}
		s.object(func(key []byte) {
			switch string(key) {
			case "Key":
				p.Key = s.str()
			case "Value":
				p.Value = s.bytes()
			case "CreateIndex":
				p.CreateIndex = s.number()
			case "ModifyIndex":
				p.ModifyIndex = s.number()
			case "LockIndex":
				p.LockIndex = s.number()
			case "Flags":
				p.Flags = s.number()
			case "Session":
				p.Session = s.str()
			case "Namespace":
				p.Namespace = s.str()
			case "Partition":
				p.Partition = s.str()
			default:
				s.skip()
			}
		})
		pairs = append(pairs, p)
	})
	return pairs
}

// bytes takes a string of base64; null is nil.
func (s *scanner) bytes() []byte {
	if s.null() {
		return nil
	}
	raw := s.raw()
	if s.err != nil {
		return nil
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(data, raw)
	if err != nil {
		s.fail()
	}
	return data[:n]
}
