package main

// Each of these types implements what one consumer needs of a folder.
type (
	screens      struct{ *folder } // the terminal UI, for `drover`, attach and top
	prompts      struct{ *folder } // answers to prompts, and their recordings
	runner       struct{ *folder } // commands in this process, the tour, remote sessions
	servers      struct{ *folder } // the page in a browser and the A2A server
	attending    struct{ *folder } // messages to the user
	surroundings struct{ *folder } // what agents are given; servers for editors and MCP clients
	hubs         struct{ *folder } // hubs and workers
	storage      struct{ *folder } // sessions that have ended
	doctor       struct{ *folder } // checks of this machine
)
