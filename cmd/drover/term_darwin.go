package main

import "golang.org/x/sys/unix"

const termios = unix.TIOCGETA
