package agent_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(killVariable); path != "" {
		dying(path)
		os.Exit(1) // nothing killed it
	}
	if path := os.Getenv(fullVariable); path != "" {
		filling(path)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
