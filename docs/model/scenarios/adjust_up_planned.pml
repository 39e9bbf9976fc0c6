/* One more unit added; the operator and the keeper both work on it, through a planned change. */
#define ADJUST_UP
#define TWO_ADJUSTERS
#define PLANNED_CHANGE
#include "../dropgate.pml"
