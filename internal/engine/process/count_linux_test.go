package process

import "testing"

// Who is fewer than the limit is not counted, and who is more is, not one too few.
func TestCountAbove(t *testing.T) {
	if n := CountAbove(1 << 22); n != 0 {
		t.Errorf("%d processes above four million", n)
	}
	procs, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	n := CountAbove(1)
	if n < 2 || n < len(procs)/2 || n > 2*len(procs)+10 {
		t.Errorf("%d processes beside a table of %d", n, len(procs))
	}
	if CountAbove(2*n+1000) != 0 {
		t.Error("many more than there are were found")
	}
}
