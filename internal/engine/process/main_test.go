package process_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/process"
)

// The test binary plays the programs that tests need. A role is its first word
// after "role".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		play(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "keeper" { // of a detached host; see TestDetached
		play("keeper", nil)
		os.Exit(0)
	}
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
	case "ended-by": // a signal of its own; it prints what became of the command
		g, err := process.StartGroup(process.Command{Args: []string{"sh", "-c", "kill -" + args[0] + " $$"}, Env: os.Environ()})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // which it lives through, as before
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		exit, err := g.Wait(context.Background())
		fmt.Println(exit, err)
	case "keeper":
		below, err := process.StartGroup(process.Command{Args: []string{"sleep", "1000"}, Env: os.Environ(), Session: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(below.Identity().PID, os.Getpid())
		time.Sleep(time.Hour)
	case "starter", "starter-group": // of a keeper, whose parent it stays
		_, err := process.StartGroup(process.Command{Args: args, Env: append(os.Environ(), process.MarkKeeper+"="+process.Detached),
			Stdout: os.Stdout, Stderr: os.Stderr, Session: role == "starter"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		time.Sleep(time.Hour)
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(99)
	}
}
