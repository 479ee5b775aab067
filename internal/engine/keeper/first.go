package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
)

// RunFirst runs a program with the words and files of this process, passes signals on to it, and
// reaps every process that the kernel gives to the first one of a container. It returns how the
// program ended. The program is a child, so that nothing else takes the exits that it waits for.
func RunFirst(program string, args []string) (process.Exit, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)
	// In a group of its own the program gets the signals of a terminal once, from the terminal.
	attr := &syscall.SysProcAttr{Setpgid: true}
	if _, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil {
		attr.Foreground = true // of descriptor 0
	}
	child, err := os.StartProcess(program, args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		return process.Exit{}, fmt.Errorf("start again as a child of the first process: %w", err)
	}
	go func() { // ends with this process
		for s := range signals {
			switch s {
			case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU:
			default:
				_ = child.Signal(s)
			}
		}
	}()
	for {
		e, err := waitAny()
		if err != nil && !errors.Is(err, syscall.ECHILD) {
			return process.Exit{}, err
		}
		if err != nil || e.pid == child.Pid {
			return e.exit, nil
		}
	}
}
