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
	goleak.VerifyTestMain(m)
}
