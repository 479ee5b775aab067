package lifecycle_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The package promises to start no goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
