package builtin

import "github.com/drover-dev/drover/internal/driver/dream"

// Dream is a consolidation of memory. What a host has left of one that died is not
// adopted: the lock on disk is put back by the next who looks.
func (k *Kinds) Dream(c dream.Config, in dream.Input) Work {
	return Work{Driver: dream.New(c), Input: encode(in)}
}
