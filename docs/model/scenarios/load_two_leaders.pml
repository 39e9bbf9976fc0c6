/* A planned change; a second leader takes over in the middle of the load while the first is only paused,
   and the reservation may be cancelled. */
#define PLANNED_CHANGE
#define LEADERS 2
#define CANCEL_A 1
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
