package process_test

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays the programs that tests need. A role is its first word
// after "role".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		play(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	// Under nohup a signal is ignored, and so it would be in every child.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	goleak.VerifyTestMain(m)
}

func play(role string, args []string) {
	switch role {
	case "exit":
		n, _ := strconv.Atoi(args[0])
		os.Exit(n)
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		time.Sleep(time.Hour) // not for ever: the runtime would see a deadlock
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(99)
	}
}
