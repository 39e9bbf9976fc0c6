/* A planned change; one load call times out and lands late. */
#define PLANNED_CHANGE
#define LOAD_CALL_LATE
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
