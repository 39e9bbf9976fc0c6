/* A planned change; Redis goes away for ever while loading. */
#define PLANNED_CHANGE
#define REDIS_GOES_AWAY
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
