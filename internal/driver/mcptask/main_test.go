package mcptask_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/test/mcptest"
)

// asServer makes the test binary a server on its stdin and stdout.
const asServer = "MCPTASK_TEST_SERVER"

// extended is its value for a server with the extension of 2026-07-28.
const extended = "extended"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		mcptest.New(mcptest.Options{Extension: os.Getenv(asServer) == extended}).ServeStdio(os.Stdin, os.Stdout)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
