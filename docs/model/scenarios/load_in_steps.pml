/* A planned change whose load unlinks the older keys step by step. */
#define PLANNED_CHANGE
#define UNLINK_IN_STEPS
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
