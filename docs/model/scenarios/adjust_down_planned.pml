/* The only unit is to be taken out of sale through a planned change of authority. */
#define ADJUST_DOWN
#define PLANNED_CHANGE
#include "../dropgate.pml"
