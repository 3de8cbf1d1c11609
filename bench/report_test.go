package main

import (
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred samples
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		of   samples
		q    float64
		want float64
	}{
		{samples{7}, 0.5, 7},
		{samples{7}, 0.95, 7},
		{samples{2, 1}, 0.5, 1},
		{samples{3, 1, 2}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.95, 95},
		{hundred, 0.99, 99},
	} {
		if got := c.of.quantile(c.q); got != c.want {
			t.Errorf("quantile %g of %v = %g; want %g", c.q, c.of, got, c.want)
		}
	}
}

func TestRowsSayWhatWasMet(t *testing.T) {
	t.Parallel()
	r := report{Rows: []row{
		{what: "good", jorc: samples{1, 2, 3}, peer: samples{4}, limit: 2, note: "why"},
		{what: "bad", jorc: samples{2.5}, limit: 2, note: "why"},
		{what: "writes", jorc: samples{0}, limit: 0},
		{what: "none", jorc: samples{5}, limit: noTarget, note: "other"},
		{what: "floor", jorc: samples{3}, floors: samples{2}, floor: "1 + 1", ofFloor: 1.5, limit: noTarget},
		{what: "slower", jorc: samples{3}, floors: samples{2}, floor: "1 + 1", ofFloor: 1.4, limit: 5},
		{what: "peer", jorc: samples{2}, peer: samples{9}, ofPeer: 5, limit: noTarget},
		{what: "alone", jorc: samples{2}, ofPeer: 5, limit: noTarget},
	}}
	table, notes := r.results()
	if len(notes) != 2 || notes[0] != "why" || notes[1] != "other" {
		t.Errorf("notes = %q; want each once", notes)
	}
	for i, want := range []string{
		"good [1]  2.00 3.00 3.00 4.00 – – 0.50 – – ≤ 2 yes 3", "bad [1]  2.50 – – – – – – – – ≤ 2 **no** 1",
		"writes  0 – – – – – – – – ≤ 0 yes 1", "none [2]  5.00 – – – – – – – – – – 1",
		"floor  3.00 – – – – – – 1 + 1 1.50 ≤ 1.5 × floor yes 1", "slower  3.00 – – – – – – 1 + 1 1.50 ≤ 1.4 × floor, ≤ 5 **no** 1",
		"peer  2.00 – – 9.00 – – 0.22 – – ≤ peer / 5 **no** 1", "alone  2.00 – – – – – – – – ≤ peer / 5 – 1",
	} {
		if got := strings.Join(table[i+1], " "); got != want {
			t.Errorf("row %d = %q; want %q", i, got, want)
		}
	}
}

func TestLayoutAligns(t *testing.T) {
	t.Parallel()
	got := layout([][]string{{"what", "n"}, {"größer", "10"}, {"x", "1"}})
	want := "| what   |  n |\n|--------|---:|\n| größer | 10 |\n| x      |  1 |\n"
	if got != want {
		t.Errorf("layout =\n%swant\n%s", got, want)
	}
}

func TestProcAddress(t *testing.T) {
	t.Parallel()
	got, err := procAddress("127.1.2.3:8500")
	if err != nil || got != "0302017F:2134" {
		t.Errorf("procAddress = %q, %v; want 0302017F:2134", got, err)
	}
}
