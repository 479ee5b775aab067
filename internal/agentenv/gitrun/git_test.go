package gitrun

import "testing"

func TestFlood(t *testing.T) {
	full := 0
	s := &stream{limit: 5, full: func() { full++ }}
	for range 3 {
		if n, err := s.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if s.kept.String() != "abcab" || full == 0 {
		t.Errorf("kept %q, told %d times", s.kept.String(), full)
	}
}
