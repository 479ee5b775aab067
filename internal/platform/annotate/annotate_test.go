package annotate

import (
	"errors"
	"testing"
)

func TestError(t *testing.T) {
	cause := errors.New("no")
	open := func(with error) (err error) {
		defer Error(&err, "open %s", "x")
		return with
	}
	if err := open(cause); !errors.Is(err, cause) || err.Error() != "open x: no" {
		t.Error(err)
	}
	if err := open(nil); err != nil {
		t.Error(err)
	}
}
