package mcptask_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/agentenv/mcpclient/mcptest"
)

// asServer makes the test binary a server on its stdin and stdout.
const asServer = "MCPTASK_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		mcptest.New(mcptest.Options{}).ServeStdio(os.Stdin, os.Stdout)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
